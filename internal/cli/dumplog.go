package cli

import (
	"bufio"
	"errors"
	"fmt"
	"os"

	"github.com/spf13/cobra"

	"milena/internal/record"
)

func (a *app) dumpLogCommand() *cobra.Command {
	var o record.DumpOptions
	c := &cobra.Command{
		Use: "dump-log FILE…", Short: "Print the batches of segment files in the layout of Kafka's dump-log tool",
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) == 0 {
				return usagef("dump-log needs FILE, a .log file of a partition's directory")
			}
			return nil
		},
		RunE: func(_ *cobra.Command, args []string) error {
			out := bufio.NewWriterSize(a.env.Stdout, 64<<10)
			bad := 0
			for _, name := range args {
				res, err := dumpFile(out, name, o)
				if err != nil {
					return errors.Join(err, out.Flush()) // what was read before it helps
				}
				bad += res.Invalid
				if res.TrailingBytes > 0 {
					bad++
				}
			}
			if err := out.Flush(); err != nil {
				return err
			}
			if bad > 0 {
				return &exitError{ExitFailed, fmt.Errorf("%d damaged place(s) found", bad)}
			}
			return nil
		},
	}
	c.Flags().BoolVar(&o.Deep, "deep-iteration", false, "a line for every record")
	c.Flags().BoolVar(&o.Contents, "print-data-log", false, "keys and values too")
	return c
}

func dumpFile(out *bufio.Writer, name string, o record.DumpOptions) (record.DumpResult, error) {
	f, err := os.Open(name)
	if err != nil {
		return record.DumpResult{}, usagef("%w", err)
	}
	defer f.Close()
	st, err := f.Stat()
	if err != nil {
		return record.DumpResult{}, err
	}
	fmt.Fprintf(out, "Dumping %s\n", name)
	return record.Dump(out, f, st.Size(), o)
}
