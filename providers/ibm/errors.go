package ibm

import (
	"bytes"
	"encoding/json"
	"errors"
	"mime"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/anyccm/cloud-controller-manager/providers/kit/cloudapi"
	"github.com/anyccm/cloud-controller-manager/providers/kit/session"
)

// checkEndpoint is the advice for a response that does not come from IBM Cloud.
const checkEndpoint = "check the endpoints in the cloud config, ENABLE_VPC_PUBLIC_ENDPOINT and proxies"

// errDuplicate marks a creation that was refused because the name is taken.
var errDuplicate = errors.New("the name is taken")

// errInUse marks a deletion that was refused because another object uses this one; waiting does not help.
var errInUse = errors.New("it is in use")

// fault is the API's error document.
type fault struct {
	Errors []apiFault `json:"errors"`
	Trace  string     `json:"trace"`
}

type apiFault struct {
	Code    string `json:"code"`
	Message string `json:"message"`
	Target  *struct {
		Name string `json:"name"`
	} `json:"target"`
}

func (f fault) hasCode(end string) bool {
	return slices.ContainsFunc(f.Errors, func(e apiFault) bool { return strings.HasSuffix(e.Code, end) })
}

// isDuplicate reports whether a name is taken.
func (f fault) isDuplicate() bool {
	return f.hasCode("duplicate_name") || f.hasCode("validation_unique_failed")
}

func (f fault) text() string {
	var all []string
	for _, e := range f.Errors {
		t := strings.TrimPrefix(e.Message, "error communicating with LBaaS: ")
		if e.Target != nil && e.Target.Name != "" {
			t += " [" + e.Target.Name + "]"
		}
		all = append(all, e.Code+": "+t)
	}
	return shorten(strings.Join(all, "; "))
}

// maxMessage bounds a text from another program.
const maxMessage = 400

// shorten shortens a text from another program for a message.
func shorten(text string) string { return text[:min(len(text), maxMessage)] }

// hideSecrets removes the request's secrets from a response, which may repeat them in an error.
func hideSecrets(body []byte, secrets ...string) []byte {
	for _, one := range secrets {
		if one != "" {
			body = bytes.ReplaceAll(body, []byte(one), []byte("(hidden)"))
		}
	}
	return body
}

// isJSON reports whether a response declares to be JSON.
func isJSON(h http.Header) bool {
	kind, _, _ := mime.ParseMediaType(h.Get("Content-Type"))
	return kind == "application/json" || strings.HasSuffix(kind, "+json")
}

// apiError maps a failed response to the common classes. Only the API's own error document makes an object absent: a proxy's HTML page, or
// a response of the token service, says nothing about an object.
func apiError(answer *http.Response, what string, body []byte) error {
	e := &cloudapi.Error{
		Class: cloudapi.ClassOfStatus(answer.StatusCode), Operation: what, Status: answer.StatusCode,
		RequestID: shorten(answer.Header.Get("X-Request-Id")), RetryAfter: cloudapi.ParseRetryAfter(answer.Header, time.Now()),
	}
	var said fault
	known := isJSON(answer.Header) && json.Unmarshal(body, &said) == nil && len(said.Errors) > 0
	if said.Trace != "" {
		e.RequestID = shorten(said.Trace)
	}
	e.Message = said.text()
	switch {
	case answer.StatusCode == http.StatusUnauthorized:
		e.Cause = session.ErrEnded
		if !known {
			e.Message = "the token is not accepted"
		}
	case !known:
		e.Message = "a page instead of an answer of the API; " + checkEndpoint
		if !errors.Is(e.Class, cloudapi.ErrRateLimited) {
			e.Class = cloudapi.ErrTransient
		}
	case said.hasCode("over_quota"):
		e.Class = cloudapi.ErrQuota
	case said.isDuplicate():
		e.Class, e.Cause = cloudapi.ErrConflict, errDuplicate
	case said.hasCode("pool_delete_conflict"), said.hasCode("in_use"):
		e.Class, e.Cause = cloudapi.ErrConflict, errInUse
	case answer.StatusCode == http.StatusConflict, answer.StatusCode == http.StatusPreconditionFailed: // perhaps changed concurrently
		e.Class = cloudapi.ErrConflict
	case said.hasCode("rate_limit_exceeded"):
		e.Class = cloudapi.ErrRateLimited
	case errors.Is(e.Class, cloudapi.ErrNotFound) && !said.hasCode("not_found"):
		e.Class = cloudapi.ErrTransient
	}
	return e
}
