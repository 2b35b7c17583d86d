"""`memplan calibrate`: what this machine's card holds beside PyTorch's segments, measured. The program starts this and reads lines of JSON."""
