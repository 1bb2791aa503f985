package secure

import (
	"github.com/asynkron/protoactor-go/remote"
	"google.golang.org/grpc/encoding"
	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
)

// partsMax bounds what one batch may hold of each: envelopes, senders, targets and
// type names. The library packs at most batchMax messages, with one of each.
const partsMax = batchMax

// batchField is the field of remote.RemoteMessage that holds a batch.
var batchField = (&remote.RemoteMessage{}).ProtoReflect().Descriptor().Fields().
	ByName("message_batch").Number()

// counting is the server's codec. It counts before it decodes: an empty envelope
// is two bytes on the wire and fifty times that in memory.
type counting struct {
	encoding.CodecV2
	metrics *Metrics
}

// Unmarshal implements encoding.CodecV2.
func (c counting) Unmarshal(data mem.BufferSlice, v any) error {
	m, ok := v.(*remote.RemoteMessage)
	if !ok {
		return c.CodecV2.Unmarshal(data, v) // of a call, which Unary refuses
	}
	text := data.MaterializeToBuffer(mem.DefaultBufferPool())
	defer text.Free()
	if !countable(text.ReadOnlyData()) {
		c.metrics.refused.WithLabelValues(refusedMalformed).Inc()
		return errMalformed
	}
	return proto.Unmarshal(text.ReadOnlyData(), m)
}

// countable reports whether a remote.RemoteMessage holds no more parts than an honest one.
func countable(text []byte) bool {
	counts := map[protowire.Number]int{}
	return each(text, func(field protowire.Number, value []byte) bool {
		if field != batchField {
			return true
		}
		// A field that comes twice is merged with itself, so the counts go on.
		return each(value, func(field protowire.Number, _ []byte) bool {
			counts[field]++
			return counts[field] <= partsMax
		})
	})
}

// each calls f for the fields of a message until it says no. False: it did, or the
// message is cut off.
func each(text []byte, f func(field protowire.Number, value []byte) bool) bool {
	for len(text) > 0 {
		field, kind, n := protowire.ConsumeTag(text)
		if n < 0 {
			return false
		}
		text = text[n:]
		if n = protowire.ConsumeFieldValue(field, kind, text); n < 0 {
			return false
		}
		value := text[:n]
		if kind == protowire.BytesType {
			value, _ = protowire.ConsumeBytes(value)
		}
		if !f(field, value) {
			return false
		}
		text = text[n:]
	}
	return true
}
