package admin

import "net/http"

// forgetReceiver drops what a receiver taught us, on all nodes at once.
func (s *Server) forgetReceiver(w http.ResponseWriter, r *http.Request) {
	var in ForgetCall
	if !read(w, r, &in) {
		return
	}
	found, err := s.desk.Forget(r.Context(), in)
	answer(w, found, err)
}
