ask() { exec 3<>/dev/tcp/127.0.0.1/9901; printf '%s HTTP/1.1\r\nhost: envoy\r\nconnection: close\r\n\r\n' "$1" >&3; cat <&3; }
sleep 5
ask 'POST /drain_listeners?graceful&skip_exit'
for i in {1..50}; do sleep 1; ask 'GET /stats?filter=^http.orders.downstream_rq_active$' | grep -q 'active: 0' && exit; done
