package receiver

import "rollcall/smtp/throttle"

// CarefulBelow is the number of refusals in an hour from which on a receiver is taken to
// bear refusals.
const CarefulBelow = strangerBelow

// Careful says after how many refusals a session is ended, whatever the allowance says,
// with a receiver that is not known to bear refusals, and whether that is so with this
// allowance.
func Careful(a throttle.Limits) (most int, applies bool) {
	return strangerRefused, !toleratesRefusals(a)
}
