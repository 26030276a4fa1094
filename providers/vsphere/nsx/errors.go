package nsx

import (
	"cmp"
	"encoding/json"
	"errors"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/anyccm/cloud-controller-manager/providers/kit/cloudapi"
)

// errReferenced: NSX refuses to delete an object in use.
var errReferenced = errors.New("other objects still use it")

// fault is the body of a failure.
type fault struct {
	HTTPStatus string `json:"httpStatus"`
	Message    string `json:"error_message"`
	Details    string `json:"details"`
	Related    []struct {
		Message string `json:"error_message"`
	} `json:"related_errors"`
}

// readFault returns NSX's own message about a failure; false if a proxy responded.
func readFault(header http.Header, body []byte) (f fault, recognised bool) {
	if !strings.Contains(header.Get("Content-Type"), "json") || json.Unmarshal(body, &f) != nil {
		return fault{}, false
	}
	return f, f.Message != "" || f.HTTPStatus != ""
}

func (f fault) text() string {
	text := f.Message
	if f.Details != "" && f.Details != f.Message {
		text += ": " + f.Details
	}
	all := []string{text}
	for _, r := range f.Related {
		all = append(all, r.Message)
	}
	return strings.Join(all, "; ")
}

// responseError maps a failed response. A page that is not NSX's says nothing about an object.
func responseError(answer *http.Response, doing string, body []byte) error {
	mapped := &cloudapi.Error{
		Class: cloudapi.ErrTransient, Operation: doing, Status: answer.StatusCode,
		RequestID: answer.Header.Get("X-Nsx-Requestid"), RetryAfter: cloudapi.ParseRetryAfter(answer.Header, time.Now()),
	}
	fault, recognised := readFault(answer.Header, body)
	if !recognised {
		mapped.Message = "an answer that is not NSX's (" + http.StatusText(answer.StatusCode) + "); check the host of the section nsxt, and proxies"
		if answer.StatusCode == http.StatusUnauthorized {
			mapped.Class = cloudapi.ErrUnauthorized
		}
		return mapped
	}
	mapped.Message = fault.text()
	mapped.Class = cmp.Or(classOf(answer.StatusCode, body), cloudapi.ClassOfStatus(answer.StatusCode))
	if isDeletionRefused(answer) {
		mapped.Class, mapped.Cause = cloudapi.ErrConflict, errReferenced
	}
	return mapped
}

// isDeletionRefused reports whether NSX refuses a deletion now. Its codes are not documented, and a deletion request is always valid, so
// that the status is enough.
func isDeletionRefused(answer *http.Response) bool {
	return answer.Request != nil && answer.Request.Method == http.MethodDelete &&
		slices.Contains([]int{http.StatusBadRequest, http.StatusConflict, http.StatusPreconditionFailed}, answer.StatusCode)
}

// classOf recognizes that a client makes more concurrent calls than NSX accepts, which has another status than 429.
func classOf(status int, body []byte) error {
	var f fault
	if status == http.StatusServiceUnavailable && json.Unmarshal(body, &f) == nil && strings.Contains(strings.ToLower(f.Message), "exceeded") {
		return cloudapi.ErrRateLimited
	}
	return nil
}
