package disk

import (
	"errors"
	"io/fs"

	"golang.org/x/sys/unix"
)

// pwritev is one pwritev(2), begun again when a signal interrupts it. Control keeps
// the descriptor from being closed, and given to another file, meanwhile.
func (o *osFile) pwritev(iov [][]byte, off int64) (n int, err error) {
	cerr := o.raw.Control(func(fd uintptr) {
		for {
			n, err = unix.Pwritev(int(fd), iov, off)
			if !errors.Is(err, unix.EINTR) {
				return
			}
		}
	})
	if cerr != nil {
		return 0, cerr
	}
	return n, err
}

// Sync is fdatasync: data and length, but not times. A read-only handle has nothing to sync.
func (o *osFile) Sync() error {
	if o.readOnly {
		return nil
	}
	var err error
	cerr := o.raw.Control(func(fd uintptr) {
		for {
			err = unix.Fdatasync(int(fd))
			if !errors.Is(err, unix.EINTR) {
				return
			}
		}
	})
	if err == nil {
		err = cerr
	}
	if err != nil {
		return &fs.PathError{Op: "fdatasync", Path: o.f.Name(), Err: err}
	}
	return nil
}
