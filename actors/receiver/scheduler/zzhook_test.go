package scheduler

var zzhook func(*trial)
var zzlast string
var zzsec int64
