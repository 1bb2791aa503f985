// Package people is the part of the ledger about people who sign in to the pages: users, memberships, one-time
// links, sessions, failed sign-ins and the log of a workspace.
//
// Book implements ledger.People with SQL that changes rows conditionally. Every call may be run again: by the
// caller's id (of a link, a session, a state of codes) it finds what an earlier run did, and does nothing more. No
// credit moves here.
package people
