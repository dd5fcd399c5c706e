package ipc

// Import makes a buffer of memory of the process: Len bytes at Off of the file whose
// descriptor comes along. Answer: ImportOK. Errors: those of shm.MapImport; EINVAL without
// a descriptor; ENOMEM, ENOBUFS (quota). Only with FeatureImport.
type Import struct{ Off, Len uint64 }

// ImportOK names the buffer.
type ImportOK struct{ Buffer uint32 }

// Type implements Body.
func (*Import) Type() Type { return TypeImport }

// Type implements Body.
func (*ImportOK) Type() Type { return TypeImportOK }
