package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"

	"rollcall/config"
	"rollcall/http/api"
	"rollcall/ledger"
)

// pollLocal is how often the node in this process is looked at: often enough
// for a live bar, and a tenth of what one key may ask.
const pollLocal = 500 * time.Millisecond

// verifyFlags are the flags of verify.
type verifyFlags struct {
	lab, json             bool
	spreadsheet           bool
	out, api, key, config string
}

func newVerify(e environment) *cobra.Command {
	var f verifyFlags
	c := &cobra.Command{
		Use:   "verify FILE",
		Short: "Verify one CSV file and print the results",
		Long: "Verify one CSV file and print the results as CSV, with progress and a closing table on " +
			"standard error.\n\n" +
			"Without --api the whole work is done in this process, which needs the open Internet with outgoing " +
			"port 25;\n" +
			"with --lab it asks simulated receivers instead. With --api a running service does it.\n\n" +
			"Stopped half-way (Ctrl-C), it ends with exit code 1, and the same command goes on where it stopped. With " +
			"--api\nonly this program stops: the service goes on, and charges. `rollcall cancel ID` ends that.",
		Args: wantArgs("FILE"),
	}
	c.Flags().BoolVar(&f.lab, "lab", false, "ask simulated receivers on this machine instead of real ones")
	c.Flags().StringVar(&f.out, "out", "", "write the results there instead of standard output")
	c.Flags().StringVar(&f.api, "api", "", "the URL of a running service")
	c.Flags().StringVar(&f.key, "key", "", "with --api: the API key; better ROLLCALL_KEY, which other "+
		"users can't see")
	c.Flags().StringVar(&f.config, "config", "", "without --api: a configuration file, for [dns], [smtp], "+
		"[retry], [throttle]")
	c.Flags().BoolVar(&f.json, "json", false, "print one JSON object for programs")
	c.Flags().BoolVar(&f.spreadsheet, "spreadsheet", false, "put ' before cells that a spreadsheet would run as a "+
		"formula (= + - @, tab, CR)")
	c.RunE = func(c *cobra.Command, args []string) error {
		if f.api == "" && f.key != "" {
			return usageError{"--key needs --api URL"}
		}
		f.key = firstSet(f.key, e.value("ROLLCALL_KEY"))
		if err := f.check(); err != nil {
			return err
		}
		loaded, err := config.Load(f.config, e)
		if err != nil {
			return err
		}
		in, err := openInput(args[0])
		if err != nil {
			return err
		}
		defer in.Close()
		r := &verifyRun{environ: e, flags: f, input: in, view: newProgressView(c.ErrOrStderr()), stdout: c.OutOrStdout()}
		if f.api != "" {
			err = verifyRemote(c.Context(), r, loaded)
		} else {
			err = verifyLocal(c.Context(), r, loaded)
		}
		r.view.stop()
		return r.left(err)
	}
	return c
}

// check refuses flags that don't go together.
func (f verifyFlags) check() error {
	switch {
	case f.spreadsheet && f.json && f.out == "":
		return usageError{"--spreadsheet and --json don't go together: JSON has no formulas; give --out for the results"}
	case f.api != "" && f.lab:
		return usageError{"--lab and --api don't go together: the service has its own receivers"}
	case f.api != "" && f.config != "":
		return usageError{"--config and --api don't go together: the service has its own configuration"}
	case f.api != "" && f.key == "":
		return usageError{"the API key is missing: set ROLLCALL_KEY or give --key"}
	case f.api != "":
		return checkBase("--api", f.api, apiDefault)
	}
	return nil
}

// verifyRun is one run of verify.
type verifyRun struct {
	environ environment
	flags   verifyFlags
	input   *input
	view    *progressView
	stdout  io.Writer
	client  *apiClient
	memory  *memory
	poll    time.Duration // longest wait between two looks; 0: as long as the service says

	id    string      // of the verification, as soon as the service has said it
	stage verifyStage // how far it is
}

// verifyRemote has the file verified by a running service.
func verifyRemote(ctx context.Context, r *verifyRun, c config.Config) error {
	r.client = newAPIClient(r.flags.api, r.flags.key, r.view.notice)
	r.memory = newMemory(filepath.Join(c.DataDir, "verify-api"), r.input.sum, r.flags.api, r.flags.key)
	return r.run(ctx)
}

// run creates or recovers the verification, uploads, waits and writes the results.
func (r *verifyRun) run(ctx context.Context) error {
	identity, err := r.memory.identity()
	if err != nil {
		return err
	}
	made, err := r.client.create(ctx, identity, r.input.size, filepath.Base(r.input.name))
	if err != nil {
		return err
	}
	r.id, r.stage = made.ID, stageCreated
	if made.Upload != nil {
		if made.Upload.Method != "" && made.Upload.Method != http.MethodPut {
			return fmt.Errorf("the service wants the upload by %s, which this program can't", made.Upload.Method)
		}
		r.view.phase("uploading")
		sent := func(n int64) { r.view.uploaded(n, r.input.size) }
		if err := r.client.upload(ctx, made.Upload.URL, r.input, r.input.size, sent); err != nil {
			return err
		}
	}
	r.stage = stageUploaded
	detail, err := r.wait(ctx, made.ID)
	if err != nil {
		return err
	}
	r.stage = stageFinal
	if detail.Status == string(ledger.Failed) {
		return errors.Join(r.failure(detail), r.memory.forget())
	}
	summary, err := r.deliver(ctx, detail)
	if err != nil {
		return err
	}
	if err := r.memory.forget(); err != nil {
		return err
	}
	err = r.close(summary)
	if err == nil && detail.Status == string(ledger.Cancelled) {
		err = fmt.Errorf("%s: somebody cancelled the verification; these are the results until then", r.input.name)
	}
	return err
}

// failure says why a file was refused or given up.
func (r *verifyRun) failure(d api.Detail) error {
	if d.Issue == nil {
		return fmt.Errorf("%s: the verification failed", r.input.name)
	}
	return fmt.Errorf("%s: %s (%s)", r.input.name, issueText(d.Issue), d.Issue.Code)
}

// wait looks at the verification until it is final.
func (r *verifyRun) wait(ctx context.Context, id string) (api.Detail, error) {
	counted := tally{}
	for {
		d, wait, err := r.client.detail(ctx, id)
		if err != nil {
			return d, err
		}
		final := ledger.Status(d.Status).Final()
		settled := d.Progress.Completed + d.Progress.Errors
		if counted.behind(settled) || final && counted.sum() != settled {
			if counted, err = r.client.tally(ctx, id); err != nil {
				return d, err
			}
		}
		r.view.progress(d, counted)
		if final {
			return d, nil
		}
		if r.poll > 0 {
			wait = min(wait, r.poll)
		}
		if err := sleep(ctx, wait); err != nil {
			return d, err
		}
	}
}
