"""Readers, one module per family of formats."""

READABLE = (
    "CSV, TSV and other separated text (.csv, .tsv, .txt; also .gz, .bz2, .xz), Parquet, Feather and Arrow, Excel's "
    ".xlsx, NumPy's .npy and .npz, LIBSVM text, MATLAB's .mat, and folders of images"
)
