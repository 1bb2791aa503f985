// Command rollcall is the one binary: node, operator's commands, customer's client and lab.
//
// main.go parses and runs, and lists the commands. The commands of each noun, such as receivers, are in a file of its
// name. node starts all parts of a node's process, client asks a service as a customer or an operator does, and term
// writes for a terminal. Commands for operators speak to the admin listener of a running node, verify speaks the
// customer's API.
//
// Exit codes: 0 done, 1 failed, 2 wrong usage. Errors are one line on standard error that says what to do.
package main
