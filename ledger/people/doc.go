// Package people is the part of the ledger about those who sign in to the pages: users, memberships, one-time
// links, sessions, failed sign-ins and the log of a workspace.
//
// Book does what ledger.People asks for, in SQL that changes rows on conditions. Every call may be run again: it finds
// what a run before it did by the id that the caller gave (of a link, a session, a state of codes) and does
// nothing more. No credit moves here.
package people
