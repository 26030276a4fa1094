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

// Codes of errors, which are HTTP statuses as well.
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

// codeOf is the code of an error; 0 where the API has said none.
func codeOf(err error) int {
	r, _ := errors.AsType[refusal](err)
	return r.Code
}

// denied reports whether the role of the user lacks a command.
func denied(err error) bool { return codeOf(err) == codeUnknown }

// class is that of a code of the API.
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

// absent reports whether the refusal says that there is no object with an ID. The same words are said of IDs that no object can have, of
// which the provider asks for none.
func (r refusal) absent(id string) bool {
	return r.Code == codeInvalid && id != "" && strings.Contains(r.Message, "value="+id+" ") && strings.Contains(r.Message, "entity does not exist")
}

// read takes the document of a command out of an answer, or maps the answer to the common vocabulary of errors. A page comes from something
// in between: it says nothing about an object.
func read(answer *http.Response, body []byte, what, command, id string) (json.RawMessage, error) {
	e := &cloudapi.Error{
		Class: cloudapi.ClassOfStatus(answer.StatusCode), Operation: what, Status: answer.StatusCode,
		RetryAfter: cloudapi.ParseRetryAfter(answer.Header, time.Now()),
	}
	var outer map[string]json.RawMessage
	if !bytes.HasPrefix(bytes.TrimSpace(body), []byte("{")) || json.Unmarshal(body, &outer) != nil {
		e.Message = "a page instead of an answer of the API; " + checkAddress
		return nil, unclear(e)
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
	return nil, unclear(e)
}

// unclear makes an error say nothing about an object, unless it is about every call.
func unclear(e *cloudapi.Error) *cloudapi.Error {
	if !slices.Contains([]error{cloudapi.ErrUnauthorized, cloudapi.ErrRateLimited}, e.Class) || e.Status == http.StatusForbidden {
		e.Class = cloudapi.ErrTransient
	}
	return e
}

// describe completes an error with what the API has said. id is that of the object in question.
func (r refusal) describe(e *cloudapi.Error, id string) *cloudapi.Error {
	e.Class, e.Cause, e.Message = r.class(), r, restapi.Text(r.Message)
	// The API itself refused these; of others it is not known how far they came.
	e.Refused = !errors.Is(e.Class, cloudapi.ErrTransient)
	switch {
	case r.absent(id):
		e.Class = cloudapi.ErrNotFound
	case r.Code == http.StatusUnauthorized:
		e.Message += "; check the keys and the clock of this machine: signatures expire"
	case r.Code == codeUnknown:
		e.Message += "; allow the role of the user the command"
	}
	return e
}
