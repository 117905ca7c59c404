"""Starts one worker a node and watches over them."""
