"""A collective as it goes round the ring of its ranks: the steps, a picture of each, and a page with all of them."""
