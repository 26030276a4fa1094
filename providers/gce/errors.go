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

// Reasons that the API gives with status 403.
var (
	rateReasons  = []string{"rateLimitExceeded", "userRateLimitExceeded", "RATE_LIMIT_EXCEEDED"}
	quotaReasons = []string{"quotaExceeded", "limitExceeded", "QUOTA_EXCEEDED"}
	// busyReasons mean that the object is being changed or still in use.
	busyReasons = []string{"resourceInUseByAnotherResource", "resourceNotReady", "conditionNotMet"}
)

const reasonForbidden = "forbidden"

// classOf classifies responses whose status is ambiguous: rate limits come with 403.
func classOf(status int, body []byte) error {
	if status != http.StatusForbidden {
		return nil
	}
	var fault struct {
		Error struct {
			Errors []struct {
				Reason string `json:"reason"`
			} `json:"errors"`
		} `json:"error"`
	}
	_ = json.Unmarshal(body, &fault) // a foreign response has no reasons
	for _, e := range fault.Error.Errors {
		if slices.Contains(rateReasons, e.Reason) {
			return cloudapi.ErrRateLimited
		}
	}
	return nil
}

// apiError maps an SDK error to the common classes and names the operation.
func apiError(err error, operation string) error {
	if err == nil {
		return nil
	}
	said, ok := errors.AsType[*googleapi.Error](err)
	if !ok {
		if failed, ok := errors.AsType[*url.Error](err); ok {
			err = failed.Err // omit the long URL
		}
		return cloudapi.Describe(err, operation)
	}
	mapped := &cloudapi.Error{
		Class: cloudapi.ClassOfStatus(said.Code), Operation: operation, Status: said.Code, Message: said.Message, Cause: err,
		RetryAfter: cloudapi.ParseRetryAfter(said.Header, time.Now()),
	}
	if len(said.Errors) == 0 {
		// The API gives reasons. A page without them comes from a proxy, and proves nothing about the object.
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

// untilMinute returns the time until the quotas of the next minute start.
func untilMinute(now time.Time) time.Duration {
	return now.Truncate(time.Minute).Add(time.Minute + time.Second).Sub(now)
}

// isForbidden reports whether a permission is missing, as opposed to an exceeded limit or a disabled API.
func isForbidden(err error) bool {
	said, ok := errors.AsType[*googleapi.Error](err)
	return ok && said.Code == http.StatusForbidden && len(said.Errors) > 0 && said.Errors[0].Reason == reasonForbidden
}

// operationErrorClasses maps error codes of operations to classes.
var operationErrorClasses = map[string]error{
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
	class := operationErrorClasses[first.Code]
	if class == nil {
		class = cloudapi.ClassOfStatus(int(o.HttpErrorStatusCode))
	}
	if o.HttpErrorStatusCode == 0 && operationErrorClasses[first.Code] == nil {
		class = cloudapi.ErrTransient
	}
	return &cloudapi.Error{
		Class: class, Operation: what, Status: int(o.HttpErrorStatusCode), Message: first.Code + " - " + first.Message, RequestID: o.Name,
	}
}

// isAboutInstance reports whether an error says that this instance does not exist, not its zone or project.
func isAboutInstance(err error, id instanceID) bool {
	said, ok := errors.AsType[*googleapi.Error](err)
	return ok && strings.Contains(said.Message, "/zones/"+id.zone+"/instances/"+id.name+"'")
}
