// Package view has the plain values in which nodes tell operators what goes on: what every
// receiver is doing to us and we to it, why addresses wait, and what a change would do.
//
// They go as JSON between nodes, to the admin API and to the command line. There is no
// address of a customer in them; texts of receivers are cleaned of them (smtp/evidence).
package inspect
