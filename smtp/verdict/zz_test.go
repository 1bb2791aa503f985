package verdict
import ("testing";"fmt";"os";"strings")
func TestPrintGolden(t *testing.T){
 d,_:=os.ReadFile("/tmp/h/tojudge.txt")
 for _,l:=range strings.Split(string(d),"\n"){ if l==""{continue}; c:=strings.SplitN(l," | ",2)
  a,err:=Sample(c[0]+" | "+c[1],"mx.example.com"); if err!=nil{ fmt.Println("ERR",l,err); continue}
  fmt.Println("G\t"+l+"\t"+Builtin().Judge(a).golden()) } }
