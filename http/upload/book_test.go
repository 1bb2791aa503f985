package upload_test

import (
	"context"
	"testing"

	"github.com/google/uuid"

	"rollcall/config/effort"
	"rollcall/ledger"
	"rollcall/ledger/sqlstore"
)

// openBook opens a ledger of its own with one workspace.
func openBook(t testing.TB) (ledger.Book, uuid.UUID) {
	t.Helper()
	ctx := context.Background()
	book, err := sqlstore.Open(ctx, "sqlite:"+effort.Folder(t)+"/ledger.db", sqlstore.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := book.Close(); err != nil {
			t.Errorf("close ledger: %v", err)
		}
	})
	w, err := book.CreateWorkspace(ctx, uuid.New(), "test")
	if err != nil {
		t.Fatal(err)
	}
	return book, w.ID
}
