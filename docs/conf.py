"""How the pages become a site: `make docs`.

The pages of this folder are plain Markdown that reads well in a repository. What only a site needs is made here: the
navigation, the reference of the command line and of the Python names (from the code), and the pages that lie outside
this folder.
"""

from __future__ import annotations

import sys
from pathlib import Path

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE / "_site"), str(HERE.parent / "src")]

import isthmus  # noqa: E402

project = "isthmus"
author = "The isthmus authors"
project_copyright = "The isthmus authors"
version = release = isthmus.__version__

extensions = [
    "myst_parser",
    "sphinx.ext.autodoc",
    "sphinx_copybutton",
    "site_pages",
    "site_docstrings",
]
exclude_patterns = ["_site", "**/README.md"]
myst_heading_anchors = 4

autodoc_member_order = "bysource"
autodoc_typehints = "signature"
autodoc_class_signature = "mixed"
autodoc_preserve_defaults = True
maximum_signature_line_length = 96
add_module_names = False
python_use_unqualified_type_names = True
toc_object_entries = False

html_theme = "furo"
html_title = "isthmus"
html_static_path = ["_site/static"]
html_css_files = ["isthmus.css"]
html_copy_source = False
html_show_sourcelink = False
html_theme_options = {
    "light_css_variables": {"color-brand-primary": "#0b6b66", "color-brand-content": "#0b6b66"},
    "dark_css_variables": {"color-brand-primary": "#5cc8bf", "color-brand-content": "#5cc8bf"},
    "navigation_with_keys": True,
}
copybutton_prompt_text = r"^\$ "
copybutton_prompt_is_regexp = True
