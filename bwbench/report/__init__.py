"""Results as pages and sections: an HTML page, a paper section in LaTeX and Markdown, and claims about records."""
