package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"time"

	"github.com/spf13/cobra"

	"rollcall/cmd/rollcall/term"
	"rollcall/smtp"
	"rollcall/smtp/smtplab"
)

// labStopWait bounds the end of the lab, whose goroutines wait for a reply at most.
const labStopWait = 10 * time.Second

// sheetHeaderWait bounds the wait for the headers of a request for the sheet. A client sends them at once.
const sheetHeaderWait = 10 * time.Second

type labView struct {
	DNS           string   `json:"dns"`
	SMTPPort      int      `json:"smtp_port"`
	AllowNetworks []string `json:"allow_networks"`
	Sheet         string   `json:"sheet,omitempty"` // URL
}

type labFlags struct {
	network, dns, sheet string
	json, list          bool
}

func newLab() *cobra.Command {
	o := smtplab.Defaults()
	flags, sample, seed, domains := labFlags{}, 0, uint64(1), 0
	c := &cobra.Command{
		Use:   "lab",
		Short: "Run the simulated receivers and their DNS alone",
		Long: "Run the simulated receivers and their DNS alone, until Ctrl-C; then print the manners sheet, " +
			"which says how\n" +
			"the receivers were treated. The domain's name says how a receiver behaves: acme-clean.test, " +
			"shop-catchall.test,\n" +
			"uni-greylist.test; --list prints them all.",
	}
	c.Flags().StringVar(&flags.network, "network", o.Network.String(), "where the receivers live: a private "+
		"network all of\nwhose addresses are local (ip route add local NETWORK dev lo)")
	c.Flags().StringVar(&flags.dns, "dns", o.DNSListen.String(), "where DNS listens, UDP and TCP; port 0 "+
		"takes a free one")
	c.Flags().IntVar(&o.SMTPPort, "smtp-port", o.SMTPPort, "port of every receiver; 0 takes a free one")
	c.Flags().DurationVar(&o.GreylistWait, "greylist-wait", o.GreylistWait,
		"how long greylisting receivers make a client wait")
	c.Flags().DurationVar(&o.Latency, "latency", o.Latency, "wait before each reply, like a turn on a network")
	c.Flags().StringVar(&flags.sheet, "sheet", "", "host:port where /sheet and /events show over HTTP how the "+
		"receivers\nare treated (default: nowhere)")
	c.Flags().IntVar(&o.EventsMax, "events", o.EventsMax, "how many single events /events keeps; "+
		"later ones are counted")
	c.Flags().IntVar(&sample, "sample", 0, "print a CSV file of that many addresses for the lab and end")
	c.Flags().Uint64Var(&seed, "seed", seed, "with --sample: the same seed gives the same file")
	c.Flags().IntVar(&domains, "domains", domains, "with --sample: number of domains (default: a twentieth "+
		"of the addresses)")
	c.Flags().DurationVar(&o.HourLasts, "hour", o.HourLasts, "how long an \"hour\" of the guards against "+
		"harvesting lasts")
	c.Flags().BoolVar(&flags.list, "list", false, "print the personalities as a table and end")
	c.Flags().BoolVar(&flags.json, "json", false, "print JSON for programs")
	c.RunE = func(c *cobra.Command, _ []string) error {
		if flags.list {
			return printPersonalities(c, flags.json)
		}
		if sample != 0 {
			return printSample(c, seed, sample, domains)
		}
		if err := flags.put(&o); err != nil {
			return err
		}
		return runLab(c, o, flags)
	}
	return c
}

func (f labFlags) put(o *smtplab.Options) error {
	var err error
	if o.DNSListen, err = netip.ParseAddrPort(f.dns); err != nil {
		return term.UsageError(fmt.Sprintf("--dns %q is not an address and port: write one such as 127.0.0.1:5353",
			f.dns))
	}
	if o.Network, err = netip.ParsePrefix(f.network); err != nil {
		return term.UsageError(fmt.Sprintf("--network %q is not a network: write one such as 10.77.0.0/16", f.network))
	}
	if err := o.Validate(); err != nil {
		return term.UsageError(err.Error())
	}
	return nil
}

// runLab runs a lab until the command's context ends, then prints the manners sheet.
func runLab(c *cobra.Command, o smtplab.Options, flags labFlags) error {
	lab, err := smtplab.Start(o)
	if err != nil {
		return err
	}
	view := labView{DNS: lab.DNSAddr(), SMTPPort: lab.SMTPPort(), AllowNetworks: []string{lab.Network().String()}}
	server := &http.Server{Handler: lab, ReadHeaderTimeout: sheetHeaderWait}
	if flags.sheet != "" {
		listener, err := net.Listen("tcp", flags.sheet)
		if err != nil {
			return errors.Join(fmt.Errorf("--sheet: %w", err), stopLabWithin(c.Context(), lab))
		}
		view.Sheet = "http://" + listener.Addr().String()
		go func() { _ = server.Serve(listener) }() // ends with the error of Close
	}
	if flags.json {
		err = term.PrintJSON(c.OutOrStdout(), view)
	} else {
		fmt.Fprintf(c.OutOrStdout(), "The lab is running. Ctrl-C ends it and prints the manners sheet.\n"+
			"A configuration file for a node that uses it:\n\n"+
			"[dns]\nservers = [%q]\n\n[smtp]\nport = %d\nallow_networks = [%q]\n\n",
			view.DNS, view.SMTPPort, view.AllowNetworks[0])
	}
	if err == nil {
		<-c.Context().Done()
		var text []byte
		if text, err = json.MarshalIndent(lab.Manners(), "", "  "); err == nil {
			fmt.Fprintf(c.OutOrStdout(), "%s\n", text)
		}
	}
	return errors.Join(err, server.Close(), stopLabWithin(c.Context(), lab))
}

// stopLabWithin stops a lab, also if ctx has ended.
func stopLabWithin(ctx context.Context, lab *smtplab.Lab) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), labStopWait)
	defer cancel()
	if err := lab.Stop(ctx); err != nil {
		return fmt.Errorf("stop the lab: %w", err)
	}
	return nil
}

func printSample(c *cobra.Command, seed uint64, n, domains int) error {
	if n < 1 || domains < 0 {
		return term.UsageError("--sample and --domains must be 1 or more")
	}
	if domains == 0 {
		domains = max(n/20, 1)
	}
	fmt.Fprintln(c.OutOrStdout(), "email")
	for _, address := range smtplab.Sample(seed, n, domains) {
		fmt.Fprintln(c.OutOrStdout(), address)
	}
	return nil
}

type personalityView struct {
	Name     string `json:"name"`
	Domain   string `json:"domain"` // an example
	Family   string `json:"family"`
	MXSuffix string `json:"mx_suffix,omitempty"`
	Right    string `json:"right"` // the right outcome, or "by mailbox"
	About    string `json:"about"`
}

func printPersonalities(c *cobra.Command, asJSON bool) error {
	var views []personalityView
	for _, p := range smtplab.Personalities() {
		right := "by mailbox"
		if p.Fixed != smtp.Undecided {
			right = p.Fixed.String()
		}
		views = append(views, personalityView{
			Name: p.Name, Domain: "acme-" + p.Name + ".test", Family: p.Family, MXSuffix: p.MXSuffix,
			Right: right, About: p.About,
		})
	}
	if asJSON {
		return term.PrintJSON(c.OutOrStdout(), views)
	}
	var rows [][]string
	for _, v := range views {
		rows = append(rows, []string{v.Name, v.Family, v.Right, term.Dash(v.MXSuffix), v.About})
	}
	return term.PrintTable(c.OutOrStdout(), []string{"NAME", "FAMILY", "RIGHT", "MX BENEATH", "WHAT IT DOES"}, rows)
}
