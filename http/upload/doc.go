// Package upload is the storage URL: resumable uploads, streamed into the ledger chunk by chunk.
//
// A session is one file: its declared length, the bytes that are durable, and whether it is closed. From a session
// and the head of a request, Decide chooses whether to answer at once, or how many bytes to drop and to store. After
// returns the answer once they are stored. ParseRange reads Content-Range (RFC 9110 §14.4, with the status query
// "bytes */N" of resumable uploads). Tokens makes and checks the secret in an upload URL.
//
// Server is the listener, and put handles one request: it decides, stores bytes and answers. It never decides by the
// end of a stream: a session is complete only when the durable bytes equal the declared length. The ledger decides
// which of two writers is newer.
//
// Start with Session, Request, Decide and put.
package upload
