// Package upload is the storage URL: resumable uploads, streamed into the ledger chunk by chunk.
//
// A session is one file: its declared length, the bytes that are durable, and
// whether it is closed. Decide looks at a session and at the head of a request
// and says what to do: answer at once, or drop some bytes and store some.
// After says what to answer once bytes were stored. ParseRange reads
// Content-Range (RFC 9110 §14.4, with the status query "bytes */N" that
// resumable uploads add). Tokens makes and checks the secret in an upload URL.
//
// Server is the listener, and put the whole life of one request: it decides, takes bytes
// and answers. It never decides by the end of a stream: a session is complete when the
// durable bytes equal the declared length, and never otherwise. Which of two writers is the
// newer the ledger says.
//
// Start with Session, Request, Decide and put.
package upload
