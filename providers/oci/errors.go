package oci

import (
	"cmp"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"strings"
	"time"

	"github.com/anyccm/cloud-controller-manager/providers/kit/cloudapi"
)

// decode reads an answer into out, or maps it to the common vocabulary of errors. A page that is not JSON comes from something in between:
// it says nothing about an object.
func decode(answer *http.Response, what string, out any) error {
	body, err := io.ReadAll(answer.Body) // which the client below bounds
	if err != nil {
		return cloudapi.Describe(err, what)
	}
	mapped := &cloudapi.Error{
		Class: cloudapi.ErrTransient, Operation: what, Status: answer.StatusCode, RequestID: answer.Header.Get("Opc-Request-Id"),
		Message: "a page instead of an answer of the API; check auth.region and proxies",
	}
	isJSON := strings.Contains(answer.Header.Get("Content-Type"), "json")
	if answer.StatusCode >= http.StatusMultipleChoices {
		var refusal struct{ Code, Message string }
		if isJSON && json.Unmarshal(body, &refusal) == nil && refusal.Code != "" {
			mapped.Message = refusal.Code + ": " + refusal.Message
			mapped.Class = cmp.Or(classesOfCodes()[refusal.Code], cloudapi.ClassOfStatus(answer.StatusCode))
		}
		mapped.RetryAfter = cloudapi.ParseRetryAfter(answer.Header, time.Now())
		return mapped
	}
	if out == nil {
		if len(body) == 0 {
			return nil
		}
		out = new(any)
	}
	if mapped.Cause = errors.New("it is not JSON"); isJSON {
		mapped.Cause = json.Unmarshal(body, out)
	}
	if mapped.Cause != nil {
		return mapped
	}
	return nil
}

// classesOfCodes has the codes that tell more than the status.
func classesOfCodes() map[string]error {
	return map[string]error{
		"LimitExceeded": cloudapi.ErrQuota, "QuotaExceeded": cloudapi.ErrQuota,
		"RelatedResourceNotAuthorizedOrNotFound": cloudapi.ErrUnauthorized, "InsufficientServicePermissions": cloudapi.ErrUnauthorized,
		"SignUpRequired": cloudapi.ErrUnauthorized, "TooManyRequests": cloudapi.ErrRateLimited,
	}
}

// errOtherKind is part of the error about a Service that has a load balancer of the other kind.
var errOtherKind = errors.New("the type of a load balancer cannot be changed")
