// Entry of the page.
