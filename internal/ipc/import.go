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

func (m *Import) append(b []byte) []byte { return le.AppendUint64(le.AppendUint64(b, m.Off), m.Len) }
func (m *Import) parse(r *reader)        { *m = Import{Off: r.u64(), Len: r.u64()} }

func (k *ImportOK) append(b []byte) []byte { return le.AppendUint32(b, k.Buffer) }
func (k *ImportOK) parse(r *reader)        { k.Buffer = r.u32() }
