package main

import (
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"rollcall/cmd/rollcall/client"
	"rollcall/cmd/rollcall/term"
	"rollcall/config"
	"rollcall/http/admin"
)

func newUser(e environment) *cobra.Command {
	c := asGroup(&cobra.Command{
		Use: "user", Short: "Invite people to the pages, list them, and end their access",
		Long: "People sign in to the pages of a node with an email and a password. Rollcall sends no mail: an invitation " +
			"is a\n" +
			"link that you pass on. It can be used once, within 72 hours.",
	})
	node := addAdminFlags(c, e)
	c.AddCommand(newUserInvite(node), newUserPassword(node), newUserList(node), userSwitch(node, "disable EMAIL",
		"Keep somebody from signing in; their sessions and links end within 5 seconds", true),
		userSwitch(node, "enable EMAIL", "Let somebody sign in again", false),
		newUserEndSessions(node), newUserEndTwoStep(node))
	return c
}

func newUserInvite(node *adminFlags) *cobra.Command {
	c := &cobra.Command{
		Use:   "invite --workspace ID EMAIL",
		Short: "Make a link with which somebody joins a workspace",
		Long: "Make a link with which somebody joins a workspace, and print it. Whoever has the link can use it, so " +
			"pass it on\nwhere nobody else reads it.",
		Example: "  rollcall user invite --workspace 5f2c91aa-8f6e-4b1c-9d53-0c9b7c1f1a2b --role owner anna@example.com",
	}
	workspace := workspaceFlag(c, node)
	role := c.Flags().String("role", "member", "viewer (sees), member (also uploads, checks and cancels) or owner (also "+
		"keys, people and the log)")
	return adminCommand(node, c, func(client *client.Admin, args []string) (l admin.UserLink, err error) {
		return l, client.Ask(c.Context(), "POST", "/v1/workspaces/"+*workspace+"/invitations",
			map[string]string{"email": args[0], "role": *role}, &l)
	}, func(b *term.Page, l admin.UserLink) { printLink(b, c.ErrOrStderr(), l) })
}

func newUserPassword(node *adminFlags) *cobra.Command {
	c := &cobra.Command{
		Use:   "password EMAIL",
		Short: "Make a link with which somebody sets a new password",
		Long: "Make a link with which somebody sets a new password, and print it. Using it ends all their sessions; " +
			"an\n" +
			"older link of this kind ends at once.",
	}
	return adminCommand(node, c, func(client *client.Admin, args []string) (l admin.UserLink, err error) {
		return l, client.Ask(c.Context(), "POST", "/v1/users/password", map[string]string{"email": args[0]}, &l)
	}, func(b *term.Page, l admin.UserLink) { printLink(b, c.ErrOrStderr(), l) })
}

func printLink(b *term.Page, notes io.Writer, l admin.UserLink) {
	fmt.Fprintf(notes, "Pass the link on now: it is not shown again. It can be used once, until %s.\n",
		time.Time(l.ExpiresAt).UTC().Format("2006-01-02 15:04 UTC"))
	fmt.Fprintln(b, l.URL)
}

func newUserList(node *adminFlags) *cobra.Command {
	c := &cobra.Command{Use: "list", Short: "List those who may sign in, or the members of a workspace"}
	workspace := c.Flags().String("workspace", "", "only the members of this one, by name or id, with their roles")
	return adminCommand(node, c, func(to *client.Admin, _ []string) (found admin.UserPage, err error) {
		path := "/v1/users"
		if *workspace != "" {
			id, err := to.WorkspaceID(c.Context(), *workspace)
			if err != nil {
				return found, err
			}
			path = "/v1/workspaces/" + id + "/members"
		}
		found.Users, err = to.Users(c.Context(), path)
		return found, err
	}, func(b *term.Page, found admin.UserPage) { printUsers(b, found.Users, *workspace != "") })
}

func printUsers(b *term.Page, users []admin.UserLine, members bool) {
	head := []string{"EMAIL", "NAME", "STATE", "CREATED"}
	if members {
		head = []string{"EMAIL", "NAME", "STATE", "SINCE", "ROLE", "LAST SEEN"}
	}
	rows, now := make([][]string, len(users)), time.Now()
	for i, u := range users {
		state := "may sign in"
		if u.Disabled {
			state = "disabled"
		} else if ways := signsInWith(u); ways != "" {
			state += " with " + ways
		}
		rows[i] = []string{u.Email, u.Name, state, term.Clock(time.Time(u.CreatedAt), now)}
		if members {
			seen := "never"
			if u.SeenAt != nil {
				seen = term.Clock(time.Time(*u.SeenAt), now)
			}
			rows[i] = append(rows[i], u.Role, seen)
		}
	}
	b.Rows(head, rows)
}

func userSwitch(node *adminFlags, use, short string, disabled bool) *cobra.Command {
	c := &cobra.Command{Use: use, Short: short}
	return adminCommand(node, c, func(client *client.Admin, args []string) (u admin.UserLine, err error) {
		return u, client.Ask(c.Context(), "POST", "/v1/users/disable", map[string]any{"email": args[0], "disabled": disabled},
			&u)
	}, func(b *term.Page, u admin.UserLine) { printUsers(b, []admin.UserLine{u}, false) })
}

func newUserEndSessions(node *adminFlags) *cobra.Command {
	c := &cobra.Command{Use: "end-sessions EMAIL", Short: "Sign somebody out everywhere, within 5 seconds"}
	return adminCommand(node, c, func(client *client.Admin, args []string) (out admin.EndedSessions, err error) {
		return out, client.Ask(c.Context(), "POST", "/v1/users/end-sessions", map[string]string{"email": args[0]}, &out)
	}, func(b *term.Page, out admin.EndedSessions) {
		fmt.Fprintf(b, "%d sessions of %s ended.\n", out.Ended, term.Printable(out.Email))
	})
}

// signsInWith returns how somebody signs in, or "" if unknown.
func signsInWith(u admin.UserLine) string {
	switch is := func(b *bool) bool { return b != nil && *b }; {
	case u.HasPassword == nil:
		return ""
	case is(u.HasPassword) && is(u.HasProvider):
		return "a password or the provider" + map[bool]string{true: ", with two-step sign-in"}[is(u.HasCodes)]
	case is(u.HasPassword) && is(u.HasCodes):
		return "a password, with two-step sign-in"
	case is(u.HasPassword):
		return "a password"
	case is(u.HasProvider):
		return "the provider"
	}
	return "nothing: see `rollcall user password`"
}

func newUserEndTwoStep(node *adminFlags) *cobra.Command {
	c := &cobra.Command{
		Use:   "end-two-step EMAIL",
		Short: "End the two-step sign-in of somebody, and sign them out everywhere",
		Long: "End the two-step sign-in of somebody whose app and recovery codes are lost, and sign them out everywhere.\n" +
			"First make sure that this person really asks: afterwards the password alone signs in.",
	}
	return adminCommand(node, c, func(client *client.Admin, args []string) (u admin.UserLine, err error) {
		return u, client.Ask(c.Context(), "POST", "/v1/users/end-two-step", map[string]string{"email": args[0]}, &u)
	}, func(b *term.Page, u admin.UserLine) { printUsers(b, []admin.UserLine{u}, false) })
}

type operateAnswer struct {
	URL string `json:"url"`
	admin.OperateLink
}

func newOperate(e environment) *cobra.Command {
	c := &cobra.Command{
		Use:   "operate",
		Short: "Make a link to the operator's pages",
		Long: "Make a link to the operator's pages, and print it. It can be used once, within a minute. Whoever uses it " +
			"can do\n" +
			"what your commands can, and the operator log notes it under your name (--author). The ledger is not asked, so\n" +
			"this also works while the ledger does not answer.",
		Example: "  rollcall operate\n" +
			"  rollcall operate --read-only",
	}
	node := addAdminFlags(c, e)
	readOnly := c.Flags().Bool("read-only", false, "the session sees everything but can't change anything")
	return adminCommand(node, c, func(to *client.Admin, _ []string) (out operateAnswer, err error) {
		if strings.HasPrefix(to.Base, config.UnixPrefix) {
			return out, errors.New("a browser cannot reach a node that listens on a socket: set admin.listen to 127.0.0.1 and " +
				"a port, and start the node again")
		}
		err = to.Ask(c.Context(), "POST", "/v1/operate", admin.OperateCall{ReadOnly: *readOnly}, &out.OperateLink)
		out.URL = to.Base + out.Path
		return out, err
	}, func(b *term.Page, out operateAnswer) {
		fmt.Fprintln(b, out.URL)
		_ = b.Emit() // the output remembers a failed write
		fmt.Fprintf(c.ErrOrStderr(), "Open it in a browser before %s UTC. It can be used once.\n",
			time.Time(out.ExpiresAt).UTC().Format("15:04:05"))
	})
}
