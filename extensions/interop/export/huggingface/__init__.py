"""Exports to the format of Hugging Face's library: import tables read backwards."""
