package simkit

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"iter"
	"net/http"
	"net/url"

	"github.com/anyccm/cloud-controller-manager/registry/limits"
)

// LimitHeader says in an answer which limit a request was refused by.
const LimitHeader = "X-Simulated-Limit"

// CheckLimits returns an error where a text or a list of a request is more than the cloud takes.
func CheckLimits(c Cloud, table limits.Table, r *http.Request) error {
	operation, write := c.Operation(r)
	if !write || r.Body == nil {
		return nil
	}
	body, err := io.ReadAll(r.Body)
	if err != nil || len(body) == 0 {
		return err
	}
	r.Body = io.NopCloser(bytes.NewReader(body))
	return table.Exceeded(operation, Sizes(body))
}

// Sizes are those within the body of a request, which is JSON or a form; what is neither is the cloud's to refuse.
func Sizes(body []byte) iter.Seq[limits.Size] {
	var document any
	if json.Unmarshal(body, &document) == nil {
		return limits.Document(document)
	}
	form, _ := url.ParseQuery(string(body)) // what can be read of it
	return limits.Form(form)
}

// MarkLimit notes in an answer that a request was refused by a limit, and reports whether it was.
func MarkLimit(w http.ResponseWriter, err error) bool {
	excess, is := errors.AsType[*limits.Excess](err)
	if is {
		w.Header().Set(LimitHeader, excess.Limit.String())
	}
	return is
}
