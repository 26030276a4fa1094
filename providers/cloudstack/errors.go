package cloudstack

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/anyccm/cloud-controller-manager/providers/kit/cloudapi"
	"github.com/anyccm/cloud-controller-manager/providers/kit/restapi"
)

// Error codes of the API, also used as HTTP status.
const (
	codeInvalid     = 431
	codeUnknown     = 432 // the command is unknown, or not allowed
	codeForbidden   = 531
	codeQuota       = 532
	codeCapacity    = 533
	codeUnavailable = 534
	codeLimit       = 535
	codeInUse       = 536
	codeConflict    = 537
)

const checkAddress = "check api-url and proxies"

// refusal is the API's error for a refused call or a failed job.
type refusal struct {
	Code    int    `json:"errorcode"`
	Detail  int    `json:"cserrorcode"`
	Message string `json:"errortext"`
}

// Error implements error.
func (r refusal) Error() string { return fmt.Sprintf("CloudStack API error %d", r.Code) }

// codeOf returns the API's code of an error, or 0.
func codeOf(err error) int {
	r, _ := errors.AsType[refusal](err)
	return r.Code
}

// isDenied reports whether the user's role lacks a command.
func isDenied(err error) bool { return codeOf(err) == codeUnknown }

// class maps a code to an error class.
func (r refusal) class() error {
	switch r.Code {
	case http.StatusUnauthorized, codeUnknown, codeForbidden:
		return cloudapi.ErrUnauthorized
	case http.StatusTooManyRequests:
		return cloudapi.ErrRateLimited
	case codeQuota, codeCapacity, codeLimit:
		return cloudapi.ErrQuota
	case codeInUse, codeConflict:
		return cloudapi.ErrConflict
	case http.StatusBadRequest, 430, codeInvalid:
		return cloudapi.ErrInvalid
	}
	return cloudapi.ErrTransient
}

// isAbsent reports whether the object does not exist. The API says the same about malformed IDs, which the provider never sends.
func (r refusal) isAbsent(id string) bool {
	return r.Code == codeInvalid && id != "" && strings.Contains(r.Message, "value="+id+" ") && strings.Contains(r.Message, "entity does not exist")
}

// readResponse extracts the document of a command from a response, or returns its error. A page comes from a proxy and proves nothing about
// an object.
func readResponse(answer *http.Response, body []byte, what, command, id string) (json.RawMessage, error) {
	e := &cloudapi.Error{
		Class: cloudapi.ClassOfStatus(answer.StatusCode), Operation: what, Status: answer.StatusCode,
		RetryAfter: cloudapi.ParseRetryAfter(answer.Header, time.Now()),
	}
	var outer map[string]json.RawMessage
	if !bytes.HasPrefix(bytes.TrimSpace(body), []byte("{")) || json.Unmarshal(body, &outer) != nil {
		e.Message = "a page instead of an answer of the API; " + checkAddress
		return nil, withoutProof(e)
	}
	name := strings.ToLower(command) + "response"
	if answer.StatusCode == http.StatusOK {
		if inner, ok := outer[name]; ok && bytes.HasPrefix(inner, []byte("{")) {
			return inner, nil
		}
	}
	for _, key := range []string{name, "errorresponse"} {
		var r refusal
		if json.Unmarshal(outer[key], &r) == nil && r.Code != 0 && answer.StatusCode != http.StatusOK {
			return nil, r.describe(e, id)
		}
	}
	e.Message = "the answer is not that of the API; " + checkAddress
	return nil, withoutProof(e)
}

// withoutProof makes an error prove nothing about an object, unless it concerns all calls.
func withoutProof(e *cloudapi.Error) *cloudapi.Error {
	if !slices.Contains([]error{cloudapi.ErrUnauthorized, cloudapi.ErrRateLimited}, e.Class) || e.Status == http.StatusForbidden {
		e.Class = cloudapi.ErrTransient
	}
	return e
}

// describe completes an error with the API's message. id is the object concerned.
func (r refusal) describe(e *cloudapi.Error, id string) *cloudapi.Error {
	e.Class, e.Cause, e.Message = r.class(), r, restapi.Text(r.Message)
	// The API itself refused these; other calls may have taken effect.
	e.Refused = !errors.Is(e.Class, cloudapi.ErrTransient)
	switch {
	case r.isAbsent(id):
		e.Class = cloudapi.ErrNotFound
	case r.Code == http.StatusUnauthorized:
		e.Message += "; check the keys and the clock of this machine: signatures expire"
	case r.Code == codeUnknown:
		e.Message += "; allow the role of the user the command"
	}
	return e
}
