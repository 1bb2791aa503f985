// Command rollcall is the one binary: node, operator's commands, customer's client and lab.
//
// main.go parses and runs; root.go lists the commands, each in a file of its
// own; build.go wires a node from top to bottom. Commands for operators speak
// to the admin listener of a running node, verify speaks the customer's API.
//
// Exit codes: 0 done, 1 failed, 2 wrong usage. Errors are one line on standard
// error that says what to do.
package main
