// Package runbook adds to a line of the log at WARN or above what its reader does about it, and the
// section of the documentation that explains it.
//
// Start with [Section.Do]. A test has every such line call it.
package runbook

import "log/slog"

// Section is a section of the documentation, as a path below docs.
type Section string

// Sections of alerts, in the order of docs/alerts.md.
const (
	Down               Section = "alerts.md#ordergatedown"
	LocksFail          Section = "alerts.md#ordergatelocksfail"
	LeaseLost          Section = "alerts.md#ordergateleaselost"
	Unlocked           Section = "alerts.md#ordergateunlocked"
	OutcomesUnknown    Section = "alerts.md#ordergateoutcomesunknown"
	FilterNotReady     Section = "alerts.md#ordergatefilternotready"
	TableNotFollowed   Section = "alerts.md#ordergatetablenotfollowed"
	TableLags          Section = "alerts.md#ordergatetablelags"
	OrderNotLearned    Section = "alerts.md#ordergateordernotlearned"
	CreateUnconfirmed  Section = "alerts.md#ordergatecreatesunconfirmed"
	AnswersNotStored   Section = "alerts.md#ordergateanswersnotstored"
	ConditionsFail     Section = "alerts.md#ordergateconditionsfail"
	OrderMissing       Section = "alerts.md#ordergateordermissing"
	SnapshotFails      Section = "alerts.md#ordergatesnapshotfails"
	FilterFull         Section = "alerts.md#ordergatefilterfull"
	OrderRefused       Section = "alerts.md#ordergateorderrefused"
	FilterLeaks        Section = "alerts.md#ordergatefilterleaks"
	ConfigRefused      Section = "alerts.md#ordergateconfigrefused"
	DecisionsNotLogged Section = "alerts.md#ordergatedecisionsnotlogged"
	SpansDropped       Section = "alerts.md#ordergatespansdropped"
)

// Sections of what has no alert.
const (
	Abandoned     Section = "doubts.md#abandoned-creates"
	AdminAddress  Section = "operations.md#the-admin-address"
	Attachment    Section = "envoy.md#what-must-not-be-left-out"
	BadRows       Section = "sources.md#rows-that-are-no-orders"
	ByHand        Section = "locks-cli.md#who-released-what"
	Bodies        Section = "envoy.md#order-ids-in-bodies"
	Checking      Section = "operations.md#checking-a-configuration"
	Confirming    Section = "create-dedup.md#set-it-up"
	CreateTimes   Section = "timeouts.md#the-answer-to-a-create"
	DeclaredWhole Section = "filters-cli.md#trust"
	Faults        Section = "operations.md#reporting-a-fault"
	Forgotten     Section = "once.md#delete-a-stored-answer"
	FullRedis     Section = "locks.md#when-redis-is-full-or-moves-slots"
	HotRestart    Section = "envoy-module.md#while-envoy-is-restarted-hot"
	Latches       Section = "conditions.md#latches-by-hand"
	MariaDB       Section = "follow.md#mariadb-and-mysql"
	ModuleSetup   Section = "envoy-module.md#setting-it-up"
	MutualTLS     Section = "configuration.md#mutual-tls"
	NoLiveSource  Section = "doubts.md#without-a-live-source"
	PositionGone  Section = "follow.md#when-the-position-is-gone"
	PostgreSQL    Section = "follow.md#postgresql"
	Probes        Section = "filters-cli.md#probed-ids"
	RedisSettings Section = "redis.md#settings-of-the-servers"
	RedisUsers    Section = "redis.md#users"
	Refusals      Section = "filters-cli.md#refusals"
	Reload        Section = "reload.md#what-takes-effect-at-once"
	SetInRedis    Section = "filters.md#in-redis"
	SharedLoad    Section = "sources.md#when-several-start"
	Snapshots     Section = "snapshots.md#when-it-spares-the-sources"
	Stopping      Section = "restart.md#stopping"
	Tables        Section = "sources.md#setting-up-a-table"
	Topics        Section = "sources.md#a-topic-of-kafka"
	Trimming      Section = "doubts.md#a-log-that-is-trimmed"
	WaitTimes     Section = "timeouts.md#the-wait-for-a-lock"
	Windows       Section = "configuration-filters.md#freshness"
)

// Do returns the attributes do and see of a line. The text says what its reader has to do, or, after
// "nothing", why there is nothing to do.
func (s Section) Do(what string) slog.Attr {
	return slog.Attr{Value: slog.GroupValue(slog.String("do", what), slog.String("see", "docs/"+string(s)))}
}
