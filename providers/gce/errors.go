package gce

import (
	"encoding/json"
	"errors"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	compute "google.golang.org/api/compute/v1"
	"google.golang.org/api/googleapi"

	"github.com/anyccm/cloud-controller-manager/providers/kit/cloudapi"
)

// Reasons of errors, as the API gives them with the status 403.
var (
	rateReasons  = []string{"rateLimitExceeded", "userRateLimitExceeded", "RATE_LIMIT_EXCEEDED"}
	quotaReasons = []string{"quotaExceeded", "limitExceeded", "QUOTA_EXCEEDED"}
	// busyReasons are those of objects that are being changed, or that others still refer to.
	busyReasons = []string{"resourceInUseByAnotherResource", "resourceNotReady", "conditionNotMet"}
)

const reasonForbidden = "forbidden"

// classOf finds the class of an answer whose status does not tell: a rate limit is refused with 403.
func classOf(status int, body []byte) error {
	if status != http.StatusForbidden {
		return nil
	}
	var said struct {
		Error struct {
			Errors []struct {
				Reason string `json:"reason"`
			} `json:"errors"`
		} `json:"error"`
	}
	_ = json.Unmarshal(body, &said) // a page that is no answer of the API has no reasons
	for _, e := range said.Error.Errors {
		if slices.Contains(rateReasons, e.Reason) {
			return cloudapi.ErrRateLimited
		}
	}
	return nil
}

// apiError maps an error of the SDK to the common vocabulary and names the operation.
func apiError(err error, operation string) error {
	if err == nil {
		return nil
	}
	said, ok := errors.AsType[*googleapi.Error](err)
	if !ok {
		if failed, ok := errors.AsType[*url.Error](err); ok {
			err = failed.Err // without the address, whose parameters are long
		}
		return cloudapi.Describe(err, operation)
	}
	mapped := &cloudapi.Error{
		Class: cloudapi.ClassOfStatus(said.Code), Operation: operation, Status: said.Code, Message: said.Message, Cause: err,
		RetryAfter: cloudapi.ParseRetryAfter(said.Header, time.Now()),
	}
	if len(said.Errors) == 0 {
		// The API gives reasons. A page without them comes from something in between, and says nothing about the object.
		if said.Code == http.StatusNotFound || mapped.Message == "" {
			mapped.Class, mapped.Message = cloudapi.ErrTransient, "a page instead of an answer of the API; check api-endpoint and proxies"
		}
		return mapped
	}
	mapped.Class = classOfReason(said.Code, said.Errors[0].Reason)
	if errors.Is(mapped.Class, cloudapi.ErrRateLimited) && mapped.RetryAfter == 0 {
		mapped.RetryAfter = untilMinute(time.Now())
	}
	return mapped
}

func classOfReason(status int, reason string) error {
	switch {
	case slices.Contains(rateReasons, reason):
		return cloudapi.ErrRateLimited
	case slices.Contains(quotaReasons, reason):
		return cloudapi.ErrQuota
	case slices.Contains(busyReasons, reason):
		return cloudapi.ErrConflict
	case status == http.StatusNotFound && reason != "notFound":
		return cloudapi.ErrTransient
	}
	return cloudapi.ClassOfStatus(status)
}

// untilMinute is the time until the quotas of the next minute are there.
func untilMinute(now time.Time) time.Duration {
	return now.Truncate(time.Minute).Add(time.Minute + time.Second).Sub(now)
}

// forbidden reports whether a permission is missing, as opposed to a limit, or an API that is switched off.
func forbidden(err error) bool {
	said, ok := errors.AsType[*googleapi.Error](err)
	return ok && said.Code == http.StatusForbidden && len(said.Errors) > 0 && said.Errors[0].Reason == reasonForbidden
}

// codes are the words of operations for the reasons of answers.
var codes = map[string]error{
	"RESOURCE_NOT_FOUND":                  cloudapi.ErrNotFound,
	"RESOURCE_ALREADY_EXISTS":             cloudapi.ErrConflict,
	"RESOURCE_IN_USE_BY_ANOTHER_RESOURCE": cloudapi.ErrConflict,
	"RESOURCE_NOT_READY":                  cloudapi.ErrConflict,
	"CONDITION_NOT_MET":                   cloudapi.ErrConflict,
	"QUOTA_EXCEEDED":                      cloudapi.ErrQuota,
	"RATE_LIMIT_EXCEEDED":                 cloudapi.ErrRateLimited,
}

// operationError returns the failure of a finished operation; nil if it succeeded.
func operationError(o *compute.Operation, what string) error {
	if o.Error == nil || len(o.Error.Errors) == 0 {
		return nil
	}
	first := o.Error.Errors[0]
	class := codes[first.Code]
	if class == nil {
		class = cloudapi.ClassOfStatus(int(o.HttpErrorStatusCode))
	}
	if o.HttpErrorStatusCode == 0 && codes[first.Code] == nil {
		class = cloudapi.ErrTransient
	}
	return &cloudapi.Error{
		Class: class, Operation: what, Status: int(o.HttpErrorStatusCode), Message: first.Code + " - " + first.Message, RequestID: o.Name,
	}
}

// aboutInstance reports whether an error says of this very instance that it does not exist, and not of its zone or project.
func aboutInstance(err error, id instanceID) bool {
	said, ok := errors.AsType[*googleapi.Error](err)
	return ok && strings.Contains(said.Message, "/zones/"+id.zone+"/instances/"+id.name+"'")
}
