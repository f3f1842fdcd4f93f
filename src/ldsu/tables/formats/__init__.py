"""Readers, one module per family of formats, and the magic bytes of the formats."""

READABLE = (
    "CSV, TSV and other separated text (.csv, .tsv, .txt; also .gz, .bz2, .xz), Parquet, Feather and Arrow, Excel's "
    ".xlsx, NumPy's .npy and .npz, LIBSVM text, MATLAB's .mat, and folders of images"
)
MAGIC = (
    (b"PAR1", "parquet"),
    (b"ARROW1", "arrow"),
    (b"\xff\xff\xff\xff", "stream"),
    (b"\x93NUMPY", "npy"),
    (b"PK\x03\x04", "npz"),
    (b"MATLAB 7.3", "hdf5"),
    (b"\x89HDF\r\n\x1a\n", "hdf5"),
    (b"MATLAB 5.0", "mat"),
    (b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1", "ole"),
)
