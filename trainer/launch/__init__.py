"""Where and with how many processes a stage, an evaluation or a whole run is carried out."""
