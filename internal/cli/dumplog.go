package cli

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/spf13/cobra"

	"milena/internal/record"
)

func (a *app) dumpLogCommand() *cobra.Command {
	var o record.DumpOptions
	var mirrorState bool
	c := &cobra.Command{
		Use: "dump-log FILE…", Short: "Print the batches of segment files in the layout of Kafka's dump-log tool",
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) == 0 {
				return usagef("dump-log needs FILE, a .log file of a partition's directory")
			}
			return nil
		},
		RunE: func(_ *cobra.Command, args []string) error {
			if mirrorState {
				o.Contents, o.Decode = true, mirrorStateText
			}
			out := bufio.NewWriterSize(a.env.Stdout, 64<<10)
			bad, first := 0, ""
			for _, name := range args {
				n, where, err := dumpFile(out, name, o)
				if err != nil {
					return errors.Join(err, out.Flush()) // what was read before it helps
				}
				bad += n
				if first == "" {
					first = where
				}
			}
			if err := out.Flush(); err != nil {
				return err
			}
			if bad > 0 {
				return &exitError{ExitFailed, fmt.Errorf("%d damaged place(s) found, the first: %s", bad, first)}
			}
			return nil
		},
	}
	c.Flags().BoolVar(&o.Deep, "deep-iteration", false, "a line for every record")
	c.Flags().BoolVar(&o.Contents, "print-data-log", false, "keys and values too")
	c.Flags().BoolVar(&mirrorState, "mirror-state-decoder", false, "keys and values of __mirror_state, decoded")
	return c
}

// dumpFile prints a file and returns how many places are damaged, and where the first is.
func dumpFile(out *bufio.Writer, name string, o record.DumpOptions) (bad int, first string, err error) {
	f, err := os.Open(name)
	if err != nil {
		return 0, "", usagef("%w", err)
	}
	defer f.Close()
	st, err := f.Stat()
	if err != nil {
		return 0, "", err
	}
	fmt.Fprintf(out, "Dumping %s\n", name)
	res, err := record.Dump(out, f, st.Size(), o)
	if err != nil {
		return 0, "", err
	}
	if bad = res.Invalid; res.TrailingBytes > 0 {
		bad++
	}
	if bad > 0 {
		at, what, err := firstDamage(f, st.Size()-res.TrailingBytes, o.Limit)
		if err != nil {
			return 0, "", err
		}
		if what == "" {
			what = fmt.Sprintf("no whole batch begins there, %d bytes are left", res.TrailingBytes)
		}
		first = fmt.Sprintf("%s at position %d: %s", name, at, what)
	}
	return bad, first, nil
}

// firstDamage looks for a damaged batch in the whole batches before end, and returns its position and what is wrong with it; end
// and "" if there is none.
func firstDamage(f io.ReaderAt, end, limit int64) (at int64, what string, err error) {
	var head [record.HeaderSize]byte
	for at < end {
		if _, err := f.ReadAt(head[:], at); err != nil {
			return at, "", err
		}
		b := make(record.Batch, record.Batch(head[:]).Len()) // Dump went over it: it fits in the file
		if _, err := f.ReadAt(b, at); err != nil {
			return at, "", err
		}
		if err := b.CheckCRC(); err != nil {
			return at, err.Error(), nil
		}
		for _, err := range b.Records(limit) {
			if err != nil {
				return at, err.Error(), nil
			}
		}
		at += int64(len(b))
	}
	return end, "", nil
}
