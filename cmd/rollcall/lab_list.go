package main

import (
	"github.com/spf13/cobra"

	"rollcall/cmd/rollcall/term"
	"rollcall/smtp"
	"rollcall/smtp/smtplab"
)

// personalityView is one personality of the lab for a reader.
type personalityView struct {
	Name     string `json:"name"`
	Domain   string `json:"domain"` // an example
	Family   string `json:"family"`
	MXSuffix string `json:"mx_suffix,omitempty"`
	Right    string `json:"right"` // an outcome, or "by mailbox"
	About    string `json:"about"`
}

// printPersonalities prints what the names of the lab's domains may say.
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
		under := v.MXSuffix
		if under == "" {
			under = "-"
		}
		rows = append(rows, []string{v.Name, v.Family, v.Right, under, v.About})
	}
	return term.PrintTable(c.OutOrStdout(), []string{"NAME", "FAMILY", "RIGHT", "MX BENEATH", "WHAT IT DOES"}, rows)
}
