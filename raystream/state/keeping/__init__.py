"""What a keeper holds of other instances, and where it lies: in memory or in files.

holdings     parts of images by number: what is written to which file, and what may be let go
kept_images  images whose parts lie there, for the real and the simulated keeper
files        a folder of files, and the checksums of their pages
tiles        which parts a restore reads together
"""
