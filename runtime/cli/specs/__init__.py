"""Commands about specs: checking, showing, drawing, comparing and changing them."""
