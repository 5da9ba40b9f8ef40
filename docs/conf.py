"""The site: ``make docs``. Nothing in it comes from the network, neither when it is built nor when it is read."""

import sys
from pathlib import Path

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE / "_ext"))

from homophily import __version__  # noqa: E402

project = "homophily"
author = "the homophily developers"
project_copyright = "the homophily developers, BSD 3-Clause"
release = version = __version__

extensions = [
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
    "numpydoc",
    "myst_parser",
    "sphinx_gallery.gen_gallery",
    "cli_reference",
    "docstrings",
    "mathml",
    "offline",
    "repository_links",
]
exclude_patterns = ["_build", "_ext", "_templates"]
smartquotes = False  # "--out" is no dash
templates_path = ["_templates"]

myst_enable_extensions = ["dollarmath"]
myst_heading_anchors = 3

autosummary_generate = True
autodoc_member_order = "bysource"
autodoc_typehints = "none"  # docstrings say it
numpydoc_show_class_members = False
numpydoc_xref_param_type = False

html_math_renderer = "mathml"
html_theme = "furo"
html_title = "homophily"
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_copy_source = False
html_show_sphinx = False
html_theme_options = {
    "light_css_variables": {"color-brand-primary": "#0b5cad", "color-brand-content": "#0b5cad"},
    "dark_css_variables": {"color-brand-primary": "#7db8f0", "color-brand-content": "#7db8f0"},
}
pygments_style = "friendly"
pygments_dark_style = "monokai"

sphinx_gallery_conf = {
    "examples_dirs": str(HERE.parent / "examples"),
    "gallery_dirs": "gallery",
    "filename_pattern": r"/plot_",
    "ignore_pattern": r"(^|/)(?!plot_)[^/]*\.py$",  # scripts that the README and the Makefile use
    "image_scrapers": ("pictures",),
    "capture_repr": (),
    "within_subsection_order": "FileNameSortKey",
    "copyfile_regex": r"$^",
    "download_all_examples": False,
    "remove_config_comments": True,
    "write_computation_times": False,
    "min_reported_time": 1_000_000,
    "show_signature": False,
    "abort_on_example_error": True,
}
