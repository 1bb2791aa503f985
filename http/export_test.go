package http

import "time"

// SetCreateWait changes how long a create waits for another one. Call it before the first create.
func (s *Server) SetCreateWait(wait time.Duration) { s.creates.wait = wait }
