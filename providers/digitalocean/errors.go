package digitalocean

import (
	"errors"
	"net/http"
	"strings"
	"time"

	"github.com/digitalocean/godo"

	"github.com/anyccm/cloud-controller-manager/providers/kit/cloudapi"
)

// apiError maps an error of the SDK to cloudapi's classes and names the operation.
func apiError(err error, operation string) error {
	if err == nil {
		return nil
	}
	response, ok := errors.AsType[*godo.ErrorResponse](err)
	if !ok {
		if _, ok := errors.AsType[*godo.ArgError](err); ok {
			return &cloudapi.Error{Class: cloudapi.ErrInvalid, Operation: operation, Message: err.Error(), Cause: err}
		}
		return cloudapi.Describe(err, operation)
	}
	mapped := &cloudapi.Error{
		Class: cloudapi.ErrTransient, Operation: operation, Message: response.Message, RequestID: response.RequestID, Cause: err,
	}
	if r := response.Response; r != nil {
		mapped.Status = r.StatusCode
		mapped.Class = cloudapi.ClassOfStatus(r.StatusCode)
		mapped.RetryAfter = cloudapi.ParseRetryAfter(r.Header, time.Now())
		if r.StatusCode == http.StatusNotFound && !strings.Contains(r.Header.Get("Content-Type"), "json") {
			// The API's own "not found" is JSON. Any other page comes from a proxy and proves nothing.
			mapped.Class, mapped.Message = cloudapi.ErrTransient, "a page instead of an answer of the API; check DO_OVERRIDE_URL and proxies"
		}
		if r.StatusCode == http.StatusUnprocessableEntity && mentionsLimit(response.Message) {
			mapped.Class = cloudapi.ErrQuota
		}
	}
	return mapped
}

// mentionsLimit recognizes account limits, because the API uses one status for all invalid requests.
func mentionsLimit(message string) bool {
	m := strings.ToLower(message)
	return strings.Contains(m, "limit") && (strings.Contains(m, "exceed") || strings.Contains(m, "reached"))
}
