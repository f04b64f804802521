"""What an inference engine does with a layout before any connector sees it: pages, groups and block sizes."""
