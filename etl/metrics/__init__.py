"""What a running job tells about itself: measured beside the batches, handed to outputs that cannot hold them up."""
