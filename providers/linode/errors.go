package linode

import (
	"errors"
	"net/http"
	"strings"
	"time"

	"github.com/linode/linodego"

	"github.com/anyccm/cloud-controller-manager/providers/kit/cloudapi"
)

// apiError maps an error of the SDK to the common classes and names the operation. The SDK keeps only the text of errors; the transport has
// recorded more in caught.
func apiError(err error, caught *cloudapi.LastResponse, operation string) error {
	if err == nil {
		return nil
	}
	answer, sent := caught.Last()
	if sent != nil {
		return cloudapi.Describe(sent, operation)
	}
	mapped := &cloudapi.Error{Class: cloudapi.ErrTransient, Operation: operation, Message: err.Error(), Cause: err}
	if answer == nil {
		return mapped
	}
	mapped.Status = answer.Status
	said, ok := errors.AsType[*linodego.Error](err)
	if !ok || said.Code < http.StatusBadRequest || !strings.HasPrefix(answer.Header.Get("Content-Type"), "application/json") {
		return mapped // a page, or an unreadable response: it says nothing about the object
	}
	mapped.Message = said.Message
	mapped.Class = cloudapi.ClassOfStatus(answer.Status)
	mapped.RetryAfter = cloudapi.ParseRetryAfter(answer.Header, time.Now())
	if answer.Status == http.StatusBadRequest && strings.Contains(said.Message, "Linode busy") {
		mapped.Class = cloudapi.ErrConflict
	}
	if answer.Status == http.StatusBadRequest && mentionsLimit(said.Message) {
		mapped.Class = cloudapi.ErrQuota
	}
	return mapped
}

// mentionsLimit recognizes account limits, for which the API uses the status of any invalid request.
func mentionsLimit(message string) bool {
	m := strings.ToLower(message)
	return strings.Contains(m, "limit") && (strings.Contains(m, "exceed") || strings.Contains(m, "reached") || strings.Contains(m, "maximum"))
}
