//go:build !linux

package disk

func (o *osFile) pwritev(iov [][]byte, off int64) (int, error) {
	total := 0
	for _, b := range iov {
		n, err := o.f.WriteAt(b, off+int64(total))
		total += n
		if err != nil {
			return total, err
		}
	}
	return total, nil
}

// Sync is the system's fsync.
func (o *osFile) Sync() error { return o.f.Sync() }
