package http

import "time"

// SetCreateWait changes how long a create waits for another one, before there is any.
func (s *Server) SetCreateWait(wait time.Duration) { s.creates.wait = wait }
