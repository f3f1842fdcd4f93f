"""What every package may use: arrays, memory, progress, files, atomic fits."""
